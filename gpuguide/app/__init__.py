"""What is touched: controls, pages and the widget that draws charts."""
